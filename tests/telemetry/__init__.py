"""Metrics, traces and error reports, tried against the libraries that read them."""

"""A small shop that its readers may copy: sign-up, purchase, reports, and the jobs behind them."""

"""The benchmark beside other queues."""

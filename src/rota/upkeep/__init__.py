"""What somebody must do now and then: each is a Service of every worker, and one pass of each begins a drain."""

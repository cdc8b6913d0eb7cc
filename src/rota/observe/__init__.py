"""What can be seen of the work: events, the doctor."""

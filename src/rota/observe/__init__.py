"""What people and programs can see of the work: events, the doctor."""

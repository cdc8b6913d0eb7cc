"""What can be, and every decision. Pure: no I/O, no clock."""

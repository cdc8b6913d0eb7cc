"""What can be, and every decision. Pure: no input, no output, no clock."""

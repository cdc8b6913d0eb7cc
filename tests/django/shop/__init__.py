"""The shop: its customers, and the mails that they get."""

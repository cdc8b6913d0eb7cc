from pathlib import Path

import rota

app = rota.App()
OUTBOX = Path("outbox/mails.txt")


@app.job
def send_receipt(address: str, item: str) -> str:
    deliver(address, f"Thank you for your order: {item}.")
    return f"mailed {address}"


def deliver(address: str, text: str) -> None:
    """Send a mail. In this tutorial a file plays the mail server."""
    with OUTBOX.open("a") as mails:
        mails.write(f"To {address}: {text}\n")

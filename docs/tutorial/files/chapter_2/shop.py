from pathlib import Path

import rota

app = rota.App()
OUTBOX = Path("outbox/mails.txt")


@app.job(max_attempts=4, retry=rota.Delays("1m", "10m", "1h"), timeout="20s")
def send_receipt(address: str, item: str) -> str:
    if "@" not in address:
        raise rota.Dead(f"{address} is not a mail address")
    deliver(address, f"Thank you for your order: {item}.")
    return f"mailed {address}"


def deliver(address: str, text: str) -> None:
    """Send a mail. In this tutorial a file plays the mail server."""
    with OUTBOX.open("a") as mails:
        mails.write(f"To {address}: {text}\n")

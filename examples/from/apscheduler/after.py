import rota

app = rota.App()


@app.schedule("clean-up", "30 2 * * *", timezone="Europe/Stockholm", jitter="1m")
@app.job
def clean_up() -> None:
    print("cleaned up", flush=True)


@app.job
def remind(user: str) -> None:
    print(f"reminded {user}", flush=True)


if __name__ == "__main__":
    remind.using(delay="1s", key="ada", on_duplicate="replace").enqueue("ada")

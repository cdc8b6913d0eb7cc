import rota

from shop.database import Session, User

jobs = rota.Jobs()


@jobs.job("send_welcome_email", queue="email", transactional=True)
def send_welcome_email(user_id: int) -> str:
    with Session() as session:
        user = session.get_one(User, user_id)
    return f"sent to {user.email}"  # call your mail provider here

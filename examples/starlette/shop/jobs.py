import rota

from shop.database import Session, User

jobs = rota.Jobs()


@jobs.job("send_welcome_email", queue="email", transactional=True)
async def send_welcome_email(user_id: int) -> str:
    async with Session() as session:
        user = await session.get_one(User, user_id)
    return f"sent to {user.email}"  # call your mail provider here

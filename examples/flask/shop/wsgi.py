import os

import rota
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from shop.main import queue, site

tick = rota.wsgi.drain_endpoint(queue, secret=os.environ["TICK_SECRET"])
site.wsgi_app = DispatcherMiddleware(site.wsgi_app, {"/tick": tick})

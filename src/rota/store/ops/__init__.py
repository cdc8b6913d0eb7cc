"""How things are recorded: every store operation, as a generator of queries. Nothing here waits, sleeps or decides."""

from __future__ import annotations

from rota.store.ops.act import CancelAnswer, cancel
from rota.store.ops.claim import Branches, Claimant, Claimed, News, claim, look_back, ring_me
from rota.store.ops.enqueue import Inserted, NewRow, insert, insert_many, payload_bytes_max
from rota.store.ops.overdue import Overdue, Reaped, expire, reap
from rota.store.ops.pause import Pause, Until, copy_check, pause_all, pause_queue, pauses, resume_all, resume_copy, resume_queue
from rota.store.ops.read import Attempt, Filter, attempts, find, oldest_due, table
from rota.store.ops.retention import PartitionStep, expire_keys, forget_actions, forget_workers, partitions_due, put_dead_away, take_step
from rota.store.ops.settle import Ending, Refused, Renewed, Written, finish, give_back, numbers, progress, renew, settled, start
from rota.store.ops.upkeep import beat, declare, ensure_partitions, stop

__all__ = [
    "Attempt",
    "Branches",
    "CancelAnswer",
    "Claimant",
    "Claimed",
    "Ending",
    "Filter",
    "Inserted",
    "NewRow",
    "News",
    "Overdue",
    "PartitionStep",
    "Pause",
    "Reaped",
    "Refused",
    "Renewed",
    "Until",
    "Written",
    "attempts",
    "beat",
    "cancel",
    "claim",
    "copy_check",
    "declare",
    "ensure_partitions",
    "expire",
    "expire_keys",
    "find",
    "finish",
    "forget_actions",
    "forget_workers",
    "give_back",
    "insert",
    "insert_many",
    "look_back",
    "numbers",
    "oldest_due",
    "partitions_due",
    "pause_all",
    "pause_queue",
    "pauses",
    "payload_bytes_max",
    "progress",
    "put_dead_away",
    "reap",
    "renew",
    "resume_all",
    "resume_copy",
    "resume_queue",
    "ring_me",
    "settled",
    "start",
    "stop",
    "table",
    "take_step",
]

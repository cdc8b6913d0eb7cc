"""A parent and its child: what they send each other, and the end of either."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from rota.declare.program import describe_exit
from rota.runtime.child_process import ChildProcess
from rota.runtime.supervisor import ServedDatabase, WorkerChild
from tests.support.rules import rule
from tests.support.wait import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="child processes are for Linux"),
]

CHILD = """\
import os, signal, subprocess, sys
from rota.runtime.child_process import join_parent
"""


def start(*lines: str) -> ChildProcess:
    """Start a child that runs these lines."""
    return ChildProcess(["-c", CHILD + "\n".join(lines)])


def test_messages_of_any_size_arrive_in_order() -> None:
    child = start(
        "channel = join_parent(int(sys.argv[1]))",
        "while True: channel.send(channel.receive())",
    )
    try:
        for message in ("a", b"x" * 3_000_000, {"b": [1]}, "c"):
            child.channel.send(message)
            assert child.channel.receive(30) == message
        assert child.channel.receive(0) is None
    finally:
        child.end()


@rule("M2")
def test_what_a_child_sent_before_it_died_is_received_before_the_end_of_the_channel() -> None:
    child = start(
        "channel = join_parent(int(sys.argv[1]))",
        "channel.send('last')",
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    eventually(lambda: child.has_exited)
    assert child.channel.receive(30) == "last"
    with pytest.raises(EOFError):
        child.channel.receive(30)
    with pytest.raises(EOFError):
        child.channel.send("too late")
    assert child.reap() == -signal.SIGKILL


def test_the_end_of_a_child_is_the_end_of_what_it_started() -> None:
    child = start(
        "channel = join_parent(int(sys.argv[1]))",
        "channel.send(subprocess.Popen(['sleep', '300']).pid)",
        "signal.pause()",
    )
    program = psutil.Process(child.channel.receive(30))
    assert os.getpgid(program.pid) == os.getsid(program.pid) == child.pid
    assert child.end() == -signal.SIGKILL
    assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE
    assert child.end() == -signal.SIGKILL, "again, it changes nothing"
    child.kill()  # nor does this, and it reaches no other process of that number


@rule("M83")
def test_a_signal_to_a_child_that_is_starting_waits_until_it_can_handle_it(tmp_path: Path) -> None:
    up, go = tmp_path / "up", tmp_path / "go"
    os.mkfifo(go)
    child = start(
        f"open({str(up)!r}, 'w').close()",
        f"open({str(go)!r}).read()",
        "signal.signal(signal.SIGTERM, lambda *_: handled.append(1))",
        "handled = []",
        "channel = join_parent(int(sys.argv[1]))",
        "channel.send(handled)",
        "signal.pause()",
    )
    try:
        eventually(up.exists)
        os.kill(child.pid, signal.SIGTERM)
        go.write_text("")  # ends the child's read
        assert child.channel.receive(30) == [1]
    finally:
        child.end()


@rule("M83")
def test_an_unknown_message_of_a_worker_process_is_ignored() -> None:
    """A deploy replaces the package: the next process is of another release than its parent."""
    child = WorkerChild(
        [
            "-c",
            CHILD
            + "channel = join_parent(int(sys.argv[1]))\n"
            + "channel.send({'passes': 'many'})\n"
            + "channel.send({'readiness': 'new here', 'mood': 'fine'})\n",
        ],
        ServedDatabase(),
    )
    try:
        eventually(lambda: child.has_exited)
        assert [vitals.readiness for vitals in child.receive()] == ["new here"]
        assert child.channel.has_ended
        child.send("stop")  # nor does an order to one that has ended
    finally:
        child.end()


def test_a_parent_that_is_gone_is_the_end_of_the_channel_to_its_child() -> None:
    child = start(
        "channel = join_parent(int(sys.argv[1]))",
        "try: channel.receive()",
        "except EOFError: sys.exit(5)",
    )
    child.close()
    assert child.reap() == 5


def test_an_exit_status_is_given_in_words() -> None:
    for status, words in (
        (7, "exited with status 7"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-signal.SIGKILL, "was killed by SIGKILL, as the kernel does when memory runs out"),
        (-(signal.SIGRTMIN + 3), f"was killed by signal {signal.SIGRTMIN + 3}"),
    ):
        assert describe_exit(status) == words

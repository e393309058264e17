"""64 concurrent streams, 5 % of which leave: the pool stays sound and no request is lost."""

import asyncio
import json
import random
import time

STREAMS = 64
ABORTED = 0.05


class Tally:
    def __init__(self):
        self.finished = self.aborted = self.tokens = 0
        self.health_seconds_max = 0.0


async def one_stream(server, rng, tally):
    """One request from start to end; asserts that everything asked for arrived."""
    wanted = rng.randrange(8, 96)
    leave_after = rng.randrange(0, 8) if rng.random() < ABORTED else None
    # Some share a prefix of several pages, some nothing.
    own = [rng.randrange(4000) for _ in range(rng.choice([1, 30, 300]))]
    prompt = [9] * rng.choice([0, 64, 200]) + own
    body = {"model": server.model, "prompt": prompt, "max_tokens": wanted, "stream": True}
    body |= {"ignore_eos": True, "stream_options": {"include_usage": True}}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    )
    status = int((await reader.readline()).split()[1])
    assert status == 200
    events, done, usage = 0, False, None
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if leave_after is not None and events >= leave_after:
            break
        events += 1
        if line.startswith(b"data: [DONE]"):
            done = True
        elif b'"choices":[]' in line:
            usage = json.loads(line[6:])["usage"]
    writer.close()
    if leave_after is not None and not done:
        tally.aborted += 1
        return
    assert done, "a stream ended without its end mark"
    assert usage["completion_tokens"] == wanted
    assert usage["prompt_tokens"] == len(prompt)
    tally.finished += 1
    tally.tokens += wanted


async def client(server, seed, until, tally):
    rng = random.Random(seed)
    while time.monotonic() < until:
        await one_stream(server, rng, tally)


async def watch_health(server, until, tally):
    """Asks how the server is, all the time: its answer must not wait for anybody's tokens."""
    while time.monotonic() < until:
        started = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        tally.health_seconds_max = max(tally.health_seconds_max, time.monotonic() - started)
        await asyncio.sleep(0.1)


async def load(server, seconds):
    tally = Tally()
    until = time.monotonic() + seconds
    clients = [client(server, seed, until, tally) for seed in range(STREAMS)]
    await asyncio.gather(watch_health(server, until, tally), *clients)
    return tally


def run_load(server, seconds):
    before = server.wait_idle()
    tally = asyncio.run(load(server, seconds))
    after = server.wait_idle()

    def grown(name):
        return after[name] - before[name]

    ended = grown("sglang:num_requests_total")
    aborted = grown("sglang:num_aborted_requests_total")
    # A client may leave when the engine has just finished: aborted there is at most aborted here.
    assert ended == tally.finished + tally.aborted
    assert aborted <= tally.aborted
    assert grown("quire:requests_failed_total") == 0
    assert tally.finished >= STREAMS and tally.aborted > 0
    # Of this process's event loop as much as of the server.
    assert tally.health_seconds_max < 5
    assert server.audit() == (200, {"clean": True})
    return tally


def test_load_in_a_large_pool(start, request):
    with start() as server:
        tally = run_load(server, request.config.getoption("--load-seconds"))
        print(
            f"{tally.finished} finished, {tally.aborted} aborted, {tally.tokens} tokens, "
            f"health within {tally.health_seconds_max:.3f} s"
        )


def test_load_in_a_small_pool(start, request):
    """A pool of 4,096 tokens holds a dozen of the 64: the others wait or are preempted."""
    with start("--max-total-tokens", "4096", "--context-length", "1024") as server:
        run_load(server, request.config.getoption("--load-seconds") / 2)

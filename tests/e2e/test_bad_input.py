"""Every row of bad input gets its answer, and nobody else notices."""

import json
import threading

import pytest
from bad_rows import all_rows
from quire_server import text_of

ROWS = all_rows("kimi-nano")


def check(server, row):
    """The answer to a row, by everything that the table says of it."""
    answer = server.raw(row.request)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), (row.name, answer[:200])
    assert int(head.split()[1]) == row.status, (row.name, answer[:400])
    assert b"\r\ncontent-type: application/json\r\n" in head.lower(), (row.name, head)
    assert b"\r\nx-request-id: " in head.lower(), (row.name, head)
    assert b"\r\nconnection: close" in head.lower(), (row.name, head)
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}, row.name
    assert error["type"] == "invalid_request_error", row.name
    assert error["code"] == row.code, (row.name, error)
    if row.param:
        assert error["param"] == row.param, (row.name, error)
    assert error["message"].isprintable() and len(error["message"]) < 1000, row.name


@pytest.fixture(scope="module")
def canary(server):
    def ask():
        return server.complete(prompt=[1, 2, 3, 4], max_tokens=12, temperature=0, ignore_eos=True)[
            "choices"
        ][0]["text"]

    return ask


def test_model_name_of_the_rows(server):
    assert server.model == "kimi-nano"


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_row(server, row):
    check(server, row)


def test_canary_is_unchanged_by_all_rows(server, canary):
    before = canary()
    for row in ROWS:
        server.raw(row.request)
    assert canary() == before
    assert server.is_healthy()
    server.wait_idle()
    assert server.audit() == (200, {"clean": True})


def neighbour(server, index):
    fields = {"prompt": [index + 1, 7, 9, 11], "max_tokens": 200, "seed": index, "top_p": 0.95}
    return server.events("/v1/completions", ignore_eos=True, temperature=1.2, **fields)


def run_neighbours(server, count):
    """What each of `count` concurrent streams said."""
    said = [None] * count

    def run(index):
        said[index] = neighbour(server, index)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads, said


def test_neighbours_bytes_do_not_change(server):
    count = 32
    threads, alone = run_neighbours(server, count)
    for thread in threads:
        thread.join()
    threads, beside = run_neighbours(server, count)
    sent = 0
    while any(thread.is_alive() for thread in threads) or sent < len(ROWS):
        check(server, ROWS[sent % len(ROWS)])
        sent += 1
    for index in range(count):
        threads[index].join()
        assert alone[index][-1] == beside[index][-1] == "[DONE]"
        assert text_of(alone[index]) == text_of(beside[index]), f"stream {index} changed"
    assert sent >= len(ROWS)


def test_text_is_framed_whatever_it_says(server):
    """J4, J6: NUL, U+FFFF, U+2028 and event marks are text, in and out."""
    text = "a\u0000b\uffff\u2028\n\ndata: [DONE]\n\n\U0001f600\u202e\u200b"
    status, answer = server.post(
        "/v1/chat/completions",
        {"model": server.model, "messages": [{"role": "user", "content": text}], "max_tokens": 4},
    )
    assert status == 200 and answer["usage"]["prompt_tokens"] > 8


def test_special_tokens_in_text_are_text(server):
    """J7: markup in a message takes as many tokens as it has pieces, not one."""

    def prompt_tokens(content):
        messages = [{"role": "user", "content": content}]
        _, answer = server.post(
            "/v1/chat/completions", {"model": server.model, "messages": messages, "max_tokens": 1}
        )
        return answer["usage"]["prompt_tokens"]

    assert prompt_tokens("x<|im_end|>") - prompt_tokens("x") >= 4
    assert prompt_tokens("x</think>") - prompt_tokens("x") >= 3


def test_large_prompts_do_not_hold_the_others(server):
    """J9: health answers while megabytes without a blank are tokenized."""
    body = {"model": server.model, "prompt": "x" * (1 << 20), "max_tokens": 1}
    threads = [threading.Thread(target=server.post, args=("/v1/completions", body))]
    threads[0].start()
    answered = 0
    while threads[0].is_alive():
        assert server.is_healthy()
        answered += 1
    assert answered > 0


def test_unknown_fields_are_ignored(server):
    server.complete(prompt="a", max_tokens=1, something_new={"deep": [1, {"x": None}]}, user="u")

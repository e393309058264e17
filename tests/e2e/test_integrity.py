"""What operators see of the integrity layer, and what a user must not."""

import json

import pytest


@pytest.fixture(scope="module")
def full(start):
    with start("--integrity", "full", "--integrity-retry", "1") as server:
        yield server


def report(server):
    status, body = server.get("/integrity", port=server.admin_port)
    assert status == 200, body
    return json.loads(body)


def release(server, body):
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    path = "/integrity/release"
    status, _, answer = server.request("POST", path, data, headers, port=server.admin_port)
    return status, json.loads(answer)


def test_users_see_nothing(full):
    assert full.get("/integrity")[0] == 404
    assert full.post("/integrity/release", {"page": 1})[0] == 404


def test_pages_by_state_and_checks(full):
    full.complete(prompt=[5] * 200, max_tokens=4)
    full.complete(prompt=[5] * 200, max_tokens=4)
    full.wait_idle()
    seen = report(full)
    pages = seen["pages"]
    assert set(pages) == {"free", "reserved", "filling", "sealed", "draining", "quarantined"}
    assert pages["sealed"] == 3 and pages["quarantined"] == 0
    assert pages["reserved"] == pages["filling"] == pages["draining"] == 0
    assert (seen["quarantined"], seen["events"], seen["coverage"]) == ([], [], 1)
    looked = {check: counts["looked"] for check, counts in seen["checks"].items()}
    assert all(counts["found"] == 0 for counts in seen["checks"].values())
    for check in ("tags", "coverage", "seals", "places", "index", "ownership", "numbers"):
        assert looked[check] > 0, (check, looked)


def test_only_a_page_in_quarantine_is_released(full):
    for page in (1, 10**6, 0):
        status, answer = release(full, {"page": page})
        assert (status, answer["error"]["param"]) == (400, "page"), (page, answer)
    for body in ({}, [], {"page": "1"}, {"page": -1}, {"page": 1, "all": True}):
        assert release(full, body)[0] == 400, body
    assert full.audit() == (200, {"clean": True})


def test_metrics_by_check(full):
    page = full.get("/metrics")[1].decode()
    for check in ("tags", "seals", "writes", "audit"):
        assert f'quire:integrity_checked_total{{check="{check}"' in page
        assert f'quire:integrity_failed_total{{check="{check}"' in page
    values = full.metrics()
    assert values["quire:integrity_coverage"] == 1
    assert values["quire:integrity_quarantined"] == 0
    assert values["quire:integrity_retries_total"] == 0
    assert values["quire:integrity_checked_total"] > 0
    assert values["quire:integrity_failed_total"] == 0

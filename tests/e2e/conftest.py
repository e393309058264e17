"""Options and fixtures of the end-to-end tests: a real server, a real model, real sockets."""

import pathlib

import pytest
from quire_server import QuireServer

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption("--binary", default=str(ROOT / "build" / "quire"))
    parser.addoption("--model-path", default=str(ROOT / "models" / "kimi-nano"))
    parser.addoption("--load-seconds", type=float, default=20.0, help="length of the load test")
    parser.addoption(
        "--contamination-requests", type=int, default=2000, help="of the test of that name"
    )


@pytest.fixture(scope="session")
def start(request, tmp_path_factory):
    """Starts a server with flags: `with start("--api-key", "k") as server`."""
    binary = request.config.getoption("--binary")
    model = request.config.getoption("--model-path")
    if not pathlib.Path(binary).exists():
        pytest.skip(f"{binary} is not built")
    if not (pathlib.Path(model) / "model.safetensors").exists():
        pytest.skip(f"{model} has no model.safetensors")
    logs = tmp_path_factory.mktemp("logs")
    count = iter(range(10**6))
    return lambda *flags: QuireServer(
        binary, model, *flags, log_path=logs / f"server_{next(count)}.log"
    )


@pytest.fixture(scope="session")
def server(start):
    """The server that most tests share; its pool must be sound when they are done."""
    with start() as shared:
        yield shared
        shared.wait_idle()
        assert shared.audit() == (200, {"clean": True})
        assert shared.stop() == 0


@pytest.fixture(scope="session")
def model_path(request):
    return request.config.getoption("--model-path")


@pytest.fixture(scope="session")
def binary(request, start):
    return request.config.getoption("--binary")

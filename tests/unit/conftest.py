"""Unit tests never start Ray and never wait: both are banned here."""

import asyncio
import time

import pytest


@pytest.fixture(autouse=True)
def no_ray_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_ray(*args: object, **kwargs: object) -> None:
        raise AssertionError("a unit test tried to start Ray")

    def refuse_sleep(seconds: float) -> None:
        raise AssertionError(f"a unit test tried to sleep {seconds} s")

    real_sleep = asyncio.sleep

    async def refuse_async_sleep(delay: float, result: object = None) -> object:
        if delay > 0:
            raise AssertionError(f"a unit test tried to sleep {delay} s")
        return await real_sleep(0, result)

    monkeypatch.setattr("ray.init", refuse_ray, raising=False)
    monkeypatch.setattr(time, "sleep", refuse_sleep)
    monkeypatch.setattr(asyncio, "sleep", refuse_async_sleep)

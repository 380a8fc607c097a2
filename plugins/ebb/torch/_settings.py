"""What a user may set, checked where it is set."""

import collections.abc
import dataclasses
import functools

from ebb import _library


@dataclasses.dataclass(frozen=True)
class Settings:
    policy: str | tuple[tuple[str, str], ...] | None = None
    device_memory: int | None = None
    host_memory: int | None = None
    verify: bool = False
    floor: int | None = None
    more: tuple[tuple[str, object], ...] = ()  # further fields of ebb_runtime_options, over those above

    def options(self) -> dict:
        """As ebb_runtime_options has them."""
        given = {
            "policy": self.policy if isinstance(self.policy, str) or self.policy is None
            else ",".join(f"{pattern}={value}" for pattern, value in self.policy),
            "device_budget_bytes": self.device_memory,
            "host_bytes": self.host_memory,
            "verify": _library.ON if self.verify else None,
            "min_offload_bytes": self.floor,
        }
        return {name: value for name, value in given.items() if value is not None} | dict(self.more)


def checked(*, policy, device_memory, host_memory, verify, floor) -> Settings:
    """Raises TypeError, ValueError or EbbError, which name the option."""
    settings = Settings(
        policy=rules(policy),
        device_memory=_bytes("device_memory", device_memory),
        host_memory=_bytes("host_memory", host_memory),
        verify=_switch("verify", verify),
        floor=_bytes("floor", floor),
    )
    _try(settings)
    return settings


def _bytes(name: str, value) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"ebb: {name} is {value!r}: it is a number of bytes, an int")
    if not 1 <= value < 1 << 62:
        raise ValueError(f"ebb: {name} is {value}: it is a number of bytes, 1 or more and less than 2**62")
    return value


def _switch(name: str, value) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"ebb: {name} is {value!r}: it is True or False")
    return value


def rules(policy):
    """A policy as Settings has it."""
    if policy is None or isinstance(policy, str):
        if policy is not None and "\0" in policy:
            raise ValueError(f"ebb: policy is {policy!r}: it has a character of no text")
        return policy
    if not isinstance(policy, collections.abc.Mapping):
        raise TypeError(f"ebb: policy is of type {type(policy).__name__}: it is a word or a dictionary of patterns")
    for pattern, value in policy.items():
        if not isinstance(pattern, str) or not isinstance(value, str):
            raise TypeError(f"ebb: policy has {pattern!r}: {value!r}: both are strings")
        if set(pattern + value) & set(",=\0"):
            raise ValueError(f"ebb: policy has the pattern {pattern!r} with {value!r}: neither has commas or equals signs")
    return tuple(policy.items())


@functools.lru_cache(maxsize=64)
def _try(settings: Settings) -> None:
    """What the core says to them, on the device that does nothing."""
    _library.Runtime(**({"device": "null"} | settings.options())).close()

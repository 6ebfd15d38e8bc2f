"""Addresses of devices: what a user names, and who is meant.

In: "ray", "ray://host:port", "ssh://user@host:port", several of them, or devices. Out: devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.support.errors import InputError
from tilewright.target.target import Target
from tilewright.tune.farm.cluster import NAME, Cluster
from tilewright.tune.farm.device import Device
from tilewright.tune.farm.ssh import SshDevice

FORMS = 'it is "ssh://user@host:port", "ray", "ray://host:port", or several in a list'


def devices_of(named: Any, machine: Target, threads: int) -> list[Device]:
    """The devices that a user named. Raises InputError for what names none, and for a name that
    comes twice: a machine measures one candidate at a time."""
    listed: list[Any] = [named]
    if isinstance(named, Iterable) and not isinstance(named, str):
        listed = list(named)  # pyright: ignore[reportUnknownArgumentType]
    found: list[Device] = []
    for one in listed:
        if not isinstance(one, str):
            if not callable(getattr(one, "measure", None)):
                raise InputError(f"cannot measure on {one!r}", "it is no device", remedy=FORMS)
            found.append(one)
        elif one == NAME or one.startswith(f"{NAME}://"):
            found += Cluster(one).devices(machine, threads)
        elif one.startswith("ssh://"):
            found.append(SshDevice(one))
        else:
            raise InputError(f"cannot measure on {one!r}", "it is no device", remedy=FORMS)
    if not found:
        raise InputError("cannot measure on other machines", "no device is named", remedy=FORMS)
    names = [device.name for device in found]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        why = "it is named twice, and measures one candidate at a time"
        raise InputError(f"cannot measure on {', '.join(twice)}", why, remedy="name it once")
    return found

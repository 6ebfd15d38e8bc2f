"""Machines of a Ray cluster: an actor on each node that fits the target.

In: a cluster's address. Out: a `Device` for each of its machines that can run the target's code.
The one idea: there, a device is the same as on this machine (`WorkerDevice`), and Ray carries what
it is asked; a function's arrays are put into the cluster's store once, for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tilewright.support.errors import InputError, TilewrightError
from tilewright.support.version import __version__
from tilewright.target.target import Target
from tilewright.tune.farm.device import MISSING, Function, Vanished, WorkerDevice, missing_here
from tilewright.tune.launcher import Code
from tilewright.tune.stand import START, Duel, Outcome

STARTING = 60.0  # seconds until an actor has to be there
PATIENCE = 30.0  # seconds beside candidates' own until a node that says nothing has vanished
KEPT = 2  # functions that the cluster's store keeps
NAME = "ray"


class Actor(WorkerDevice):
    """What runs on a node."""

    def report(self, machine: Target) -> tuple[str, str]:
        """The compiler's version there, and why the node cannot run a machine's code, or ""."""
        return __version__, missing_here(machine)


class Cluster:
    """A connection to a cluster. address: "ray" for the one that this machine belongs to or that
    RAY_ADDRESS names, or "ray://host:port" of its client server. Raises InputError."""

    def __init__(self, address: str) -> None:
        self.asked = f"cannot measure on {address}"
        try:
            ray: Any = import_module("ray")
            strategies: Any = import_module("ray.util.scheduling_strategies")
        except ImportError:
            raise InputError(self.asked, "Ray is not installed", remedy=MISSING) from None
        self.ray, self.on_node = ray, strategies.NodeAffinitySchedulingStrategy
        self._functions: dict[str, Any] = {}  # references into the store
        if ray.is_initialized():
            return
        where = None if address == NAME else address
        try:
            ray.init(where or "auto", log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError, OSError) as fault:
            told = (str(fault).strip() or type(fault).__name__).splitlines()[0]
            remedy = "start one with ray start --head, or check the address"
            why = f"no cluster answers there: {told}"
            raise InputError(self.asked, why, remedy=remedy) from None

    def devices(self, machine: Target, threads: int) -> list[RayDevice]:
        """One for each node that runs the machine's code and has as many cores. Raises
        InputError where there is none, with what each lacks."""
        found: list[RayDevice] = []
        lacking: list[str] = []
        for node in self.ray.nodes():
            if not node["Alive"]:
                continue
            name = f"ray node {node.get('NodeName') or ''} ({node['NodeID'][:8]})"
            if node["Resources"].get("CPU", 0) < threads:
                lacking.append(f"{name} has less than {threads} cores")
            else:
                found.append(RayDevice(self, name, node["NodeID"]))
                found[-1].start(threads)  # all of them at the same time
        for device in [*found]:
            try:
                device.open(machine, threads)
            except (InputError, Vanished) as fault:
                told = fault.why if isinstance(fault, InputError) else str(fault)
                lacking.append(f"{device.name}: {told}")
                found.remove(device)
                device.close()
        if not found:
            why = "; ".join(lacking) or "the cluster has no nodes"
            raise InputError(self.asked, f"no node can run code for '{machine}': {why}")
        return found

    def stored(self, function: Function) -> Any:
        """A function in the cluster's store, where all its nodes find it."""
        if function.key not in self._functions:
            while len(self._functions) >= KEPT:
                self._functions.pop(next(iter(self._functions)))
            self._functions[function.key] = self.ray.put(function)
        return self._functions[function.key]


class RayDevice:
    """A node. name: for people; node: its number in the cluster."""

    def __init__(self, cluster: Cluster, name: str, node: str) -> None:
        self.cluster, self.name, self.node = cluster, name, node
        self._actor: Any = None
        self._is_open = False

    def open(self, machine: Target, threads: int) -> None:
        """See `Device`."""
        if self._is_open:
            return
        self.start(threads)
        version, why = self._asked(STARTING, "report", machine)
        if version != __version__:
            why = f"it has version {version} of the compiler, here it is {__version__}"
        if why:
            self.close()
            raise InputError(f"cannot measure code for '{machine}' on {self.name}", why)
        self._asked(STARTING, "open", machine, threads)
        self._is_open = True

    def start(self, threads: int) -> None:
        """Have an actor on the node, some time."""
        if self._actor is None:
            where = self.cluster.on_node(node_id=self.node, soft=False)
            kind = self.cluster.ray.remote(Actor)
            made = kind.options(num_cpus=threads, scheduling_strategy=where)
            self._actor = made.remote(self.name)

    def begin(self, function: Function) -> float:
        """See `Device`."""
        return self._asked(2 * START, "begin", self.cluster.stored(function))

    def measure(self, codes: Mapping[str, Code], best: float, limit: float) -> dict[str, Outcome]:
        """See `Device`."""
        seconds = START + 4 * limit * len(codes)  # twice where it was noisy, twice what ended
        return self._asked(seconds, "measure", dict(codes), best, limit)

    def duel(
        self, codes: tuple[Code, Code], seconds: float, p: float, turns: int, limit: float
    ) -> Duel:
        """See `Device`."""
        asked = codes, seconds, p, turns, limit
        return self._asked(START + 2 * (seconds + limit), "duel", *asked)

    def close(self) -> None:
        """See `Device`."""
        actor, self._actor, self._is_open = self._actor, None, False
        if actor is not None:
            self.cluster.ray.kill(actor)

    def _asked(self, seconds: float, method: str, *given: Any) -> Any:
        """The actor's answer. Raises Vanished where it is gone, and what it raised."""
        ray, actor = self.cluster.ray, self._actor
        if actor is None:
            raise Vanished("its actor was ended")
        try:
            return ray.get(getattr(actor, method).remote(*given), timeout=seconds + PATIENCE)
        except ray.exceptions.RayTaskError as fault:
            cause = fault.cause
            raise cause if isinstance(cause, TilewrightError) else fault from None
        except ray.exceptions.GetTimeoutError:
            raise Vanished(f"it said nothing for {seconds + PATIENCE:g} s") from None
        except (ray.exceptions.RayError, ConnectionError) as fault:
            told = str(fault).strip().splitlines() or [type(fault).__name__]
            raise Vanished(told[0]) from None

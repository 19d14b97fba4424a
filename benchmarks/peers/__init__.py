"""The implementations that run models, one module each: dlc, and the peers that may be installed."""

from __future__ import annotations

from benchmarks.peers import dlc, iree, onnxruntime, openvino, tinygrad, torch, tvm
from benchmarks.peers.base import Array, Peer, Session
from benchmarks.peers.dlc import for_targets

OURS = dlc.PEER
PEERS = (
    OURS, onnxruntime.PEER, openvino.PEER, torch.PEER, torch.COMPILED, iree.PEER, tvm.PEER, tinygrad.PEER
)  # fmt: skip
"""All implementations. dlc is the first."""


def installed_peers() -> list[Peer]:
    return [peer for peer in PEERS if peer.installed]


__all__ = ["OURS", "PEERS", "Array", "Peer", "Session", "for_targets", "installed_peers"]

"""The time line of a call: when each segment, host op and copy ran, and on which device.

    report.timeline                      the spans, by start
    report.trace("trace.json")           for chrome://tracing and Perfetto
    print(timeline_text(report.timeline))

Spans of different devices that overlap ran at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SEGMENT, TRANSFER, HOST_OP = "segment", "transfer", "host op"
HOST = "host"
"""The name of the host's memory, and of the device of ops that NumPy computes."""
BAR = 40
"""The characters of the time line of one span."""


@dataclass(frozen=True)
class Span:
    """A piece of work of one device, with its times."""

    name: str
    kind: str
    """`segment`, `transfer`, or `host op`."""
    device: str
    """The device that ran it; of a copy, the device that is not the host, or the destination."""
    start: float
    """Milliseconds since the beginning of the call."""
    end: float
    target: str = ""
    """The target of a segment."""
    source: str = ""
    """The device that a copy reads from."""
    destination: str = ""
    bytes: int | None = None
    """Bytes of a copy."""
    cycles: float | None = None
    """The mean cycles of the segment by the device's counter."""

    @property
    def track(self) -> str:
        """The line on which it is drawn: a device, or the copies of a device."""
        return f"{self.device} copies" if self.kind == TRANSFER else self.device


def timeline_text(spans: Sequence[Span]) -> str:
    """A line for each span: its device, times and bytes, and a bar."""
    if not spans:
        return ""
    end = max(span.end for span in spans) or 1.0
    widths = [max(len(text) for text in column) for column in zip(*((s.track, s.name) for s in spans))]
    lines = []
    for span in spans:
        first = min(int(BAR * span.start / end), BAR - 1)
        last = max(first + 1, round(BAR * span.end / end))
        bar = " " * first + "#" * (last - first)
        times = f"{span.start:9.3f} {span.end:9.3f}"
        lines.append(f"{span.track:<{widths[0]}}  {span.name:<{widths[1]}}  {times}  |{bar:<{BAR}}|")
    head = f"{'device':<{widths[0]}}  {'work':<{widths[1]}}  {'start ms':>9} {'end ms':>9}"
    return "\n".join([head, *lines])


def chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """The time line in the trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

    Each track is a thread of one process. Times are in microseconds.
    """
    tracks = {track: number for number, track in enumerate(dict.fromkeys(s.track for s in spans), 1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": track}}
        for track, number in tracks.items()
    ]
    for span in spans:
        facts = {
            "target": span.target,
            "source": span.source,
            "destination": span.destination,
            "bytes": span.bytes,
            "cycles": span.cycles,
        }
        events.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": tracks[span.track],
                "name": span.name,
                "cat": span.kind,
                "ts": 1e3 * span.start,
                "dur": 1e3 * (span.end - span.start),
                "args": {key: value for key, value in facts.items() if value not in ("", None)},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


__all__ = ["HOST", "HOST_OP", "SEGMENT", "TRANSFER", "Span", "chrome_trace", "timeline_text"]

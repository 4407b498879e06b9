"""What the name of an image says: its release, its accelerator, its CUDA."""

from __future__ import annotations

from speclaunch.facts.hardware import Vendor
from speclaunch.importer.images import tagged_version
from speclaunch.patterns import lazy
from speclaunch.record import record

_CUDA = lazy(r"-cu(?P<major>1[1-9])(?P<minor>\d)(?!\d)")
_ROCM = lazy(r"rocm")
_DATED = lazy(r"\d{8}|-[0-9a-f]{7,40}$")
_MOVING = ("latest", "dev", "nightly", "main", "edge")


@record
class Image:
    """An image by its name."""

    name: str

    @property
    def release(self) -> str | None:
        """The release of SGLang that the tag says."""
        return tagged_version(self.name)

    @property
    def digest(self) -> bool:
        """Whether it is one content for good."""
        return "@sha256:" in self.name

    @property
    def tag(self) -> str | None:
        """What stands behind the last colon; None without one."""
        last = self.name.partition("@")[0].rpartition("/")[2]
        return last.partition(":")[2] or None

    @property
    def is_moving(self) -> bool:
        """Whether what it names changes from day to day."""
        if self.digest:
            return False
        return self.tag is None or (self.tag.startswith(_MOVING) and not _DATED.search(self.tag))

    @property
    def cuda(self) -> tuple[int, int] | None:
        """The CUDA release in its tag: `cu126`."""
        found = _CUDA.search(self.tag or "")
        return None if found is None else (int(found["major"]), int(found["minor"]))

    @property
    def vendor(self) -> Vendor | None:
        """Whose GPUs it is for: AMD's where it says ROCm, NVIDIA's where it is SGLang's and says a
        CUDA release."""
        if _ROCM.search(self.name.lower()):
            return Vendor.AMD
        return Vendor.NVIDIA if self.cuda is not None else None

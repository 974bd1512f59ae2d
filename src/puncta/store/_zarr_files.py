"""The files of a store that zarr has open: read by ourselves where we know how, and through zarr's store elsewhere."""

import zipfile
from collections.abc import Hashable, Iterator
from pathlib import Path

from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, ZipStore

from puncta.errors import StoreError, UnsupportedError
from puncta.store._directory import Directory
from puncta.store._files import Answer, LocalFiles, Reads, RemoteFiles
from puncta.store._zarr_store import FilesStore
from puncta.store._zip import LocalZip


class ZarrFiles:
    """Any store of zarr, as `RemoteFiles`. It does not say how long a file is, or whether it was replaced."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = Reads()

    @property
    def name(self) -> str:
        """What zarr calls the store."""
        return str(self._store)

    @property
    def identity(self) -> Hashable:
        """Of the store as an object, which two stores never share while both are there."""
        return id(self._store)

    async def get(self, key: str) -> Answer | None:
        """Return a whole file; None where there is none."""
        answer = await self._get(key, None, start=0)
        if answer is None:
            return None
        return Answer(data=answer.data, start=0, size=len(answer.data), version=None)

    async def get_range(self, key: str, start: int, end: int) -> Answer | None:
        """Return bytes `[start, end)` of a file.

        Raises:
            StoreError: If the file ends before.

        """
        answer = await self._get(key, RangeByteRequest(start, end), start=start)
        if answer is not None and len(answer.data) != end - start:
            raise StoreError(
                f"{self.name}/{key} gave {len(answer.data)} bytes where {end - start} from byte {start} were expected; "
                "it may be incomplete: restore it from a copy"
            )
        return answer

    async def get_suffix(self, key: str, length: int) -> Answer | None:
        """Return the last bytes of a file, or all where it has fewer."""
        return await self._get(key, SuffixByteRequest(length), start=-1)

    def names(self, prefix: str) -> Iterator[str]:
        """Refuse: zarr's own store can list."""
        raise UnsupportedError(f"{self.name} is listed through zarr; use its own store for {prefix!r}")

    async def _get(self, key: str, byte_range: ByteRequest | None, *, start: int) -> Answer | None:
        try:
            buffer = await self._store.get(key, default_buffer_prototype(), byte_range)
        except Exception as error:  # stores raise whatever the library below them raises
            raise StoreError(f"could not read {self.name}/{key}: {type(error).__name__}: {error}") from error
        if buffer is None:
            return None
        data = memoryview(buffer.as_numpy_array()).cast("B")
        self.reads.add(requests=1, nbytes=len(data))
        return Answer(data=data, start=start, size=None, version=None)


def files_of_zarr(store: Store) -> tuple[LocalFiles | RemoteFiles, str]:
    """Return the files of a store, and where in them it begins, without a slash at either end."""
    if isinstance(store, FilesStore):
        return store.files, store.prefix
    if type(store) is LocalStore:
        return Directory(Path(store.root).absolute()), ""
    if type(store) is ZipStore and store.read_only and store.path is not None:
        path = Path(store.path).absolute()
        if not _is_compressed(path):
            return LocalZip(Directory(path.parent), path.name), ""
    return ZarrFiles(store), ""


def _is_compressed(archive: Path) -> bool:
    """Return whether members are compressed, which zarr unpacks and we do not."""
    with zipfile.ZipFile(archive) as opened:
        return any(member.compress_type != zipfile.ZIP_STORED for member in opened.infolist())

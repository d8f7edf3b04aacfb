"""Moves pages between an engine's paged tensors and cistern's pages: as they lie, or re-tiled to smaller blocks."""
from __future__ import annotations

from typing import Any

import torch

import cistern

from . import encodings
from .groups import Group, refuse


class PageMover:
    """The pages of one KV group on one worker. Calls name engine blocks; block 0 is the engine's placeholder and never touched.

    A cistern page of the re-tiled form is [head][layer][K, V][token][element]: as `stage` below.
    """

    def __init__(self, group: Group, tensors: list[torch.Tensor]):
        self.group = group
        want = group.page_shape
        for name, tensor in zip(group.layer_names, tensors):
            if tensor.ndim != 4 or tuple(tensor.shape[1:]) != want or tensor.dtype != group.dtype or tensor.device.type != "cpu":
                refuse(f"{name}: pages are {tuple(tensor.shape[1:])} of {tensor.dtype} on {tensor.device}, wanted {want} of {group.dtype} on cpu")
        self._tensors = tensors
        self._map = cistern.PageMap([tensor.view(torch.uint8) for tensor in tensors])
        if self.page_bytes != group.layout.part_bytes * group.layout.spans * group.heads * group.per_page:
            refuse(f"KV cache group {group.index}: a page has {self.page_bytes} bytes, the layout says otherwise")

    @property
    def layers(self) -> int:
        return len(self._tensors)

    @property
    def page_bytes(self) -> int:
        """Of one engine block on this worker."""
        return self._map.block_bytes

    def in_place(self, block_ids: list[int]) -> cistern.PageSet:
        """The engine's own memory as cistern pages."""
        return self._map.pages(block_ids, first_block=1)

    def split(self, memory: memoryview) -> list[memoryview]:
        """Staging memory as cistern pages, one a cistern block."""
        step = self.page_bytes // self.group.per_page
        return [memory[at:at + step] for at in range(0, len(memory), step)]

    def copy_out(self, block_ids: list[int], memory: memoryview) -> None:
        """Pages into staging, in the order in which they are stored."""
        if self.group.direct:
            self.in_place(block_ids).copy_to(memory)
            return
        stage, ids = self._stage(memory, len(block_ids)), torch.tensor(block_ids)
        self._check(block_ids)
        for layer, (k, v) in enumerate(self._views()):
            for plane, view in enumerate((k, v)):
                stage[:, :, :, layer, plane] = self._tiles(view[ids])

    def copy_in(self, block_ids: list[int], memory: memoryview) -> None:
        """The other way round; only whole engine blocks."""
        if self.group.direct:
            self.in_place(block_ids).copy_from(memory)
            return
        stage, ids = self._stage(memory, len(block_ids)), torch.tensor(block_ids)
        self._check(block_ids)
        for layer, (k, v) in enumerate(self._views()):
            for plane, view in enumerate((k, v)):
                tiles = stage[:, :, :, layer, plane]  # [blocks, per_page, heads, tokens, element]
                view[ids] = tiles.transpose(1, 2).reshape(view[ids].shape)

    def stage(self, blocks: int, layers: int) -> list[torch.Tensor]:
        """Memory for so many layers of pages on their way in: [cistern blocks, heads, bytes] each."""
        g = self.group
        shape = (blocks * g.per_page, g.heads, self._map.piece_bytes // g.per_page)
        return [torch.empty(shape, dtype=torch.uint8) for _ in range(layers)]

    def copy_layer_in(self, layer: int, block_ids: list[int], good: list[int], stage: torch.Tensor) -> None:
        """One layer of a stage into those of the engine's blocks whose places in `block_ids` are `good`."""
        g, ids = self.group, [block_ids[i] for i in good]
        self._check(ids)
        pages = stage.view(len(block_ids), -1)
        pages = (pages if len(good) == len(block_ids) else pages[good]).view(g.dtype)
        if g.direct:
            self._tensors[layer][ids] = pages.view(len(ids), *g.page_shape)
            return
        tiles = pages.view(len(ids), g.per_page, g.heads, 2, g.block_tokens, g.head_size)
        for plane, view in enumerate(g.encoding.views(self._tensors[layer], g.head_size)):
            view[ids] = tiles[:, :, :, plane].transpose(1, 2).reshape(len(ids), g.heads, g.block_size, g.head_size)

    def self_test(self) -> None:
        """Writes a pattern through the engine's view of its last two pages, takes it out, clears, puts it back and compares.

        Runs before the engine has written anything; leaves zeros. Refuses to go on when anything differs."""
        blocks = self._tensors[0].shape[0]
        if blocks < 3:
            refuse(f"the engine has {blocks} blocks only")
        ids = [blocks - 2, blocks - 1]
        memory = memoryview(bytearray(2 * self.page_bytes))
        want = []
        for layer, tensor in enumerate(self._tensors):
            for at, block in enumerate(ids):
                tensor[block] = encodings.pattern(*tensor.shape[1:], tensor.dtype, 7 * layer + 31 * at)
            want.append(tensor[ids[0]:].clone())
        self.copy_out(ids, memory)
        for tensor in self._tensors:
            tensor[ids[0]:] = 0
        self.copy_in(ids, memory)
        same = all(torch.equal(tensor[ids[0]:], pattern) for tensor, pattern in zip(self._tensors, want))
        for tensor in self._tensors:
            tensor[ids[0]:] = 0
        if not same:
            refuse(f"KV cache group {self.group.index}: pages in the encoding {self.group.encoding.name} do not come back as they were")

    def _views(self) -> Any:
        return (self.group.encoding.views(tensor, self.group.head_size) for tensor in self._tensors)

    def _tiles(self, pages: torch.Tensor) -> torch.Tensor:
        """[blocks, heads, tokens, element] as [blocks, per_page, heads, tokens of a cistern block, element]."""
        g = self.group
        return pages.reshape(len(pages), g.heads, g.per_page, g.block_tokens, g.head_size).transpose(1, 2)

    def _stage(self, memory: memoryview, blocks: int) -> torch.Tensor:
        g = self.group
        flat = torch.frombuffer(memory, dtype=torch.uint8).view(g.dtype)
        return flat.view(blocks, g.per_page, g.heads, len(self._tensors), 2, g.block_tokens, g.head_size)

    def _check(self, block_ids: list[int]) -> None:
        if min(block_ids) < 1 or max(block_ids) >= self._tensors[0].shape[0]:
            raise IndexError(f"engine blocks {block_ids} are not in [1, {self._tensors[0].shape[0]})")

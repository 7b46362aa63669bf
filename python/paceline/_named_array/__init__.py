"""Structures of arrays: `paceline.NamedArray`.

* `structure` has the class: fields, indexing, making and taking apart;
* `declared` the fields that subclasses declare;
* `operators` arithmetic and whatever else goes through all fields of several structures together, `functions` the
  methods that do;
* `arrays` the only module that knows numpy and torch, neither of which is imported before an array is met;
* `passing` has the methods for bytes, `encoding` turns a structure into bytes that say themselves how they are to be
  read, `container` is what all of them have in common, `codecs` are the ways to compress.
"""

from __future__ import annotations

from paceline._named_array.structure import NamedArray, rebuild

__all__ = ["NamedArray", "rebuild"]

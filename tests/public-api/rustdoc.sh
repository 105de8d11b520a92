#!/bin/sh
# Rustdoc, whose JSON a stable toolchain only makes when told that it may.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"

# SPDX-License-Identifier: MIT
"""What scripts/gcpool-trace is made of: recordings of libgcpool, read and shown."""

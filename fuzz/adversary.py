#!/usr/bin/env python3
"""Attacks the built program as a new user, an operator and an adversary would; see adversary/__init__.py."""

import sys

from adversary.main import main

if __name__ == "__main__":
    sys.exit(main())

"""What scripts that train on real graphs have in common."""

import argparse
import json
import subprocess


def arguments(about):
    """--data, --build, --only and --device of a script with this description."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--build", default="target/release/graphweft")
    parser.add_argument("--only", default="")
    parser.add_argument("--device")
    return parser.parse_args()


def call(build, *args):
    """What the program prints as JSON."""
    print("graphweft", *args, flush=True)
    done = subprocess.run([build, *args, "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)

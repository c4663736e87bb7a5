#!/usr/bin/env bash
# Everything that is tested of the Python package: types, stubs beside the module, the package itself, what its pages,
# notebooks and examples say, and graphweft.torch where torch is.
#
#     crates/python/test.sh FOLDER [PYTEST-ARGUMENT...]
#
# FOLDER has the extension and the program, as cargo built them. GRAPHWEFT_PYTHON names a Python with NumPy, SciPy,
# NetworkX, pytest and mypy. Tests of graphweft.torch need torch and torch_geometric too, several GB from PyPI, which
# nobody installs for a test: GRAPHWEFT_TORCH_PYTHON names a Python that has them (or GRAPHWEFT_PYTHON has).
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "$1")
shift
python=${GRAPHWEFT_PYTHON:-python3}
package=$PWD/target/python
rm -rf "$package" && mkdir -p "$package" && cp -r crates/python/python/graphweft "$package/"
cp "$built/lib_graphweft.so" "$package/graphweft/_graphweft.abi3.so"
export GRAPHWEFT=$built/graphweft PYTHONPATH=$package
mypy=(--config-file pyproject.toml --cache-dir target/mypy)
"$python" -m mypy "${mypy[@]}" crates/python/python/graphweft
# Examples and benchmarks have a name of their own each, and are no package.
for file in crates/python/examples/*.py benches/python/memory.py benches/python/fits.py; do
    MYPYPATH=crates/python/python:benches/python "$python" -m mypy "${mypy[@]}" "$file"
done
# The module that was built has what the stubs say, and nothing else.
(cd target && "$python" -m mypy.stubtest graphweft._graphweft --mypy-config-file ../pyproject.toml)
pytest=(-m pytest -q -rs -p no:cacheprovider)
"$python" "${pytest[@]}" --doctest-modules --doctest-ignore-import-errors "$package/graphweft" crates/python/tests "$@"
has_torch() { "$1" -c 'import torch, torch_geometric' 2>/dev/null; }
if has_torch "$python"; then
    exit
elif [ -n "${GRAPHWEFT_TORCH_PYTHON:-}" ] && has_torch "$GRAPHWEFT_TORCH_PYTHON"; then
    "$GRAPHWEFT_TORCH_PYTHON" -m mypy "${mypy[@]}" crates/python/python/graphweft
    "$GRAPHWEFT_TORCH_PYTHON" "${pytest[@]}" --doctest-modules "$package/graphweft/torch" \
        crates/python/tests/test_torch.py crates/python/tests/test_torch_cuda.py crates/python/tests/test_data.py \
        crates/python/tests/test_pages.py "$@"
else
    echo "skipped: the tests of graphweft.torch, which need torch and torch_geometric: name a Python that has them by" \
        "GRAPHWEFT_TORCH_PYTHON"
fi

#!/bin/sh
# Write constraints.txt from a fresh environment: `make pins`. PyTorch stays at the release named
# here, so that raising it is a decision and not a side effect.
set -eu
TORCH=${TORCH:-2.13.0}
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install "torch==$TORCH" --editable '.[lab,dev,class,browser,pretrained,project,site]'
{
    echo "# What the stored outputs were made with. Written by \`make pins\`; do not edit by hand."
    echo "# Both install routes with pip use it: -c constraints.txt. It pins nothing that is not installed."
    "$folder/venv/bin/python" -m pip freeze --exclude-editable | sed 's/+[a-z0-9.]*$//' | grep -v ' @ '
} >"$folder/constraints.txt"
mv "$folder/constraints.txt" constraints.txt
echo "constraints.txt: $(grep -vc '^#' constraints.txt) pins"

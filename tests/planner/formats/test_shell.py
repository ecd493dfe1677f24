"""Shell scripts as people write them: branches, appended arrays, quotations over lines, pipes, wrapped commands."""

import pytest

from cost_models.errors import BadInput
from planner.formats.megatron import arguments_of_text
from planner.formats.shell import shell_commands, shell_words

SCRIPT = r"""
TP=${TP:-2}; PP=4 # don't close this
NODES=${SLURM_NNODES:-"4"}
WORLD=$((8*$NODES))
case ${SIZE:-13B} in
  7B) HIDDEN=4096 ;;
  13B|14B)
     HIDDEN=5120
     ;;
  *) HIDDEN=1 ;;
esac
if [ $PP -gt 8 ]; then LAYERS=32
elif [[ $HIDDEN == 5120 && $TP -eq 2 ]]; then
  LAYERS=40
else LAYERS=9; fi
[ -z "$SEQUENCE" ] && SEQUENCE=2048
DIR="$(dirname "$0")"
ARGS=(--data "my data" # a comment )
  --split '9,1' )
ARGS+=(--last)
LONG=" --micro 1
 --global 2"
LONG="$LONG --bf16"
export A=1 B=2
cat <<EOF > x.json
{"it's": 'not closed}
EOF
CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc $WORLD $DIR/pretrain_gpt.py "${ARGS[@]}" $LONG \
  --hidden $HIDDEN --layers $LAYERS --seq $SEQUENCE --tp $TP "$@" 2>&1 | tee log.txt
echo done; ls
"""


def test_a_script_is_followed_line_by_line():
    command = next(each for each in shell_commands(SCRIPT) if each[0] == "torchrun")
    text = " ".join(command)
    assert command[2] == "32"
    assert "my data" in command
    assert text.endswith("--micro 1 --global 2 --bf16 --hidden 5120 --layers 40 --seq 2048 --tp 2")
    assert shell_words(SCRIPT)[-3:] == ["echo", "done", "ls"]


@pytest.mark.parametrize(
    "text",
    [
        "python pretrain_gpt.py --num-layers 4 --micro-batch-size 2 2>&1 | tee log",
        'srun -l sh -c "python -u x/pretrain_gpt.py --num-layers 4 --micro-batch-size 2"',
        'A="--num-layers 4"\nA="$A --micro-batch-size 2"\ntorchrun pretrain_gpt.py $A > out.txt\necho ended',
        'L=4\nif [ ! -n "$FAST" ]; then M=2; else M=1; fi\nX=1 torchrun p.py --num-layers $L --micro-batch-size $M',
        "--num-layers 4\n--micro-batch-size 2",
        "python tools/preprocess.py --workers 8\r\npython pretrain_gpt.py --num-layers 4 --micro-batch-size 2\r\n",
        "run() {\n local m=$1\n python p.py --num-layers 4 --micro-batch-size ${m:-2}\n}\nrun 3",
        "[ $MODE = slow ] || M=2\npython p.py --num-layers=$((2 * 2)) --micro_batch_size=${M:-7}",
    ],
)
def test_the_same_arguments_in_other_words(text):
    assert arguments_of_text(text) == {"num-layers": "4", "micro-batch-size": "2"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=$((1/0))\nrun $A", ["run", "$((1/0))"]),  # no number: stays as it is written
        ("A=$((9**9**9**9))\nrun $A", ["run", "$((9**9**9**9))"]),
        ('A="$A$A"\nB=$B\nrun $A ${B:-1}', ["run", "1"]),
        ("A='$HOME x'\nrun \"$A\"", ["run", "$HOME x"]),
        ("fi\nesac\n;;\nelse\nrun", ["run"]),
    ],
)
def test_what_cannot_be_followed_stays_as_written(text, words):
    assert [word for word in shell_words(text) if word] == words


@pytest.mark.parametrize("text", ["A=(--x 1", 'run "a', "A='b\nrun"])
def test_what_is_left_open_is_said(text):
    with pytest.raises(BadInput, match="close"):
        shell_words(text)


def test_two_trainings_are_told_apart():
    one = "python pretrain_gpt.py --micro-batch-size 1"
    assert arguments_of_text(f"{one}\npython convert.py --load x\n{one}") == {"micro-batch-size": "1"}
    with pytest.raises(BadInput, match="two trainings"):
        arguments_of_text(f"{one}\n{one} --bf16")

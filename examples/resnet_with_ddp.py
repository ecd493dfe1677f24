"""A vision team: ResNet-50 with DDP, how far it scales, and what a parameter server would do."""

from planner import evaluate

PER_GPU = 64


def main() -> None:
    """Weak scaling of a ring and of a parameter server."""
    alone = evaluate("resnet-50", "dgx-a100:1", "", global_batch=PER_GPU, engine="ddp").step_s
    print("GPUs   ring: step  efficiency   server: step  efficiency")
    for devices in (1, 8, 32, 128):
        steps = [
            evaluate(
                "resnet-50", f"dgx-a100:{devices}", "", global_batch=PER_GPU * devices, engine=engine
            ).step_s
            for engine in ("ddp", "parameter_server")
        ]
        print(
            f"{devices:4}   {steps[0]:8.3f} s  {alone / steps[0]:9.1%}   {steps[1]:10.3f} s  {alone / steps[1]:9.1%}"
        )


if __name__ == "__main__":
    main()

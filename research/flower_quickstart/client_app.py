"""The client of Flower's quickstart, as it is."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from research.flower_quickstart.task import load_data, net
from research.flower_quickstart.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the received model on local records."""
    model = net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    inputs, outcomes = load_data(int(context.node_config["partition-id"]))
    loss = train_fn(model, inputs, outcomes, epochs=5, rate=float(msg.content["config"]["lr"]))
    metrics = {"train_loss": loss, "num-examples": len(inputs)}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)

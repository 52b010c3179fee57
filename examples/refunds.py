import asyncio

from langchain_core.tools import tool

from turngate import Agent, DevServer, TurngateClient, build_worker


@tool
def refund(order: int, amount: float) -> str:
    """Pay money back to the customer of an order."""
    return f"refunded {amount:.2f} for order {order}"


agent = Agent("shop", model="openai:gpt-5", tools=[refund], interrupt_on={"refund": True})


async def ask(call):
    print(call.description)
    reason = await asyncio.to_thread(input, "Enter approves, a reason rejects: ")
    return {"type": "reject", "message": reason} if reason else {"type": "approve"}


async def main():
    async with DevServer() as server:
        temporal = await server.client()
        async with build_worker(temporal, [agent]):
            turn = await TurngateClient(temporal).run_turn("shop", "Refund 25 euros for order 4711", on_approval=ask)
            print(turn.output)


if __name__ == "__main__":
    asyncio.run(main())

"""The demo: an agent that archives and deletes real rows, and waits for a person before it does.

`turngate demo`, or `python -m turngate.demo`. One module for each part of the story:

    orders     the database it is about
    tools      what the agent can do with it, and what a reviewer is told of a call
    agent      the agent: which calls wait
    script     the stand-in for a model
    deciding   who decides: a person in this terminal, or the demo itself
    screen     what is printed
    verdict    whether everything is exactly as decided
    run        the story
"""

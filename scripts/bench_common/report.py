"""Medians, ratios and bars, as Markdown."""
import statistics


def medians(rounds, key):
    """Of a figure that each measured one has in each round: {name: median}. `rounds` are dictionaries with `name`."""
    groups = {}
    for one in rounds:
        if one.get(key) is not None:
            groups.setdefault(one["name"], []).append(one[key])
    return {name: statistics.median(group) for name, group in groups.items()}


def each(rounds, name, key):
    """A figure of one in all rounds, in order."""
    return [one[key] for one in rounds if one["name"] == name]


def bar(what, found, least=None, most=None):
    """A line that says whether a bar is met."""
    met = (least is None or found >= least) and (most is None or found <= most)
    wanted = f"at least {least:g}" if least is not None else f"at most {most:g}"
    return {"what": what, "found": found, "wanted": wanted, "met": met}


def table(head, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def bars(found):
    """The bars of a scenario."""
    rows = [(one["what"], f"{one['found']:.3g}", one["wanted"], "met" if one["met"] else "**missed**") for one in found]
    return table(("bar", "found", "wanted", ""), rows)


def spread(values, form="{:.0f}"):
    """All rounds of a figure."""
    return ", ".join(form.format(value) for value in values)

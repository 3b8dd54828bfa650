"""The picture: a group of bars for each workload and its main figure, with the best of each group full."""
from xml.sax.saxutils import escape

from .report import COLUMNS, DCD, Medians

MAIN = ("per_second", "response_us", "read_p99_us", "disk_writes_each", "drain_s", "untar_s", "copy_s", "remove_s", "first_write_s")
NAME_PX, BAR_PX, ROW_PX, GAP_PX, MARGIN_PX = 150, 420, 17, 30, 14
COLOURS = {DCD: "#c2410c", "raw": "#94a3b8", "cache disk": "#cbd5e1", "pass-through ublk": "#64748b"}
PEER_COLOUR = "#3b82f6"


def draw(found):
    """SVG of the medians."""
    medians = Medians(found["figures"])
    parts, y = [], MARGIN_PX
    for scenario, workload in medians.order:
        for key, head, form, more in (column for name in MAIN for column in COLUMNS if column[0] == name):
            values = {setup: medians.get(scenario, workload, setup, key) for setup in medians.setups(scenario, workload)}
            values = {setup: value for setup, value in values.items() if value is not None}
            if values:
                y = group(parts, y, f"{scenario}: {workload}, {head} ({'more' if more else 'less'} is better)", values, form)
    width = NAME_PX + BAR_PX + 90
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
            'font-family="sans-serif" font-size="12">')
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def group(parts, y, title, values, form):
    """The bars of one figure; where the next group begins."""
    parts.append(f'<text x="{MARGIN_PX}" y="{y + 12}" font-weight="bold">{escape(title)}</text>')
    y += ROW_PX + 4
    longest = max(values.values()) or 1
    for setup, value in values.items():
        length = max(value / longest * BAR_PX, 1)
        parts.append(f'<text x="{NAME_PX - 6}" y="{y + 12}" text-anchor="end">{escape(setup)}</text>')
        parts.append(f'<rect x="{NAME_PX}" y="{y + 2}" width="{length:.1f}" height="{ROW_PX - 4}" fill="{COLOURS.get(setup, PEER_COLOUR)}"/>')
        parts.append(f'<text x="{NAME_PX + length + 5:.1f}" y="{y + 12}">{form.format(value)}</text>')
        y += ROW_PX
    return y + GAP_PX - ROW_PX

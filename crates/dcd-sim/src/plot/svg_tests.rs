//! Drawn plots: well formed, points in their places, and no number that breaks it.

use super::super::Series;
use super::*;
use crate::plot::xml::parsed;

fn plot(log_y: bool, points: &[(f64, f64)]) -> Plot {
    Plot {
        title: "a <b> & \"c\" \u{1}'".into(),
        x_axis: "x & y".into(),
        y_axis: "]]> <!--".into(),
        log_y,
        series: vec![
            Series { name: "<s> & 1".into(), points: points.to_vec() },
            Series { name: "empty".into(), points: vec![] },
        ],
    }
}

/// The points of the first curve on the paper.
fn drawn(svg: &str) -> Vec<(f64, f64)> {
    let elements = parsed(svg);
    let (_, attributes) = elements.iter().find(|(name, _)| name == "polyline").unwrap();
    let (_, points) = attributes.iter().find(|(key, _)| key == "points").unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    let pair = |text: &str| text.split_once(',').map(|(x, y)| (number(x), number(y))).unwrap();
    points.split(' ').map(pair).collect()
}

#[test]
fn points_land_where_they_must() {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
    let linear = render(&plot(false, &[(0.0, 0.0), (5.0, 25.0), (10.0, 100.0)])).unwrap();
    let middle = (LEFT + right) / 2.0;
    assert_eq!(
        drawn(&linear),
        [(LEFT, bottom), (middle, bottom - PLOT_HEIGHT / 4.0), (right, TOP)]
    );
    let log = render(&plot(true, &[(0.0, 1e-4), (5.0, 1e-2), (10.0, 1.0)])).unwrap();
    assert_eq!(drawn(&log), [(LEFT, bottom), (middle, bottom - PLOT_HEIGHT / 2.0), (right, TOP)]);
}

#[test]
fn points_alone_are_not_joined() {
    let view = View { as_points: true, ..View::default() };
    let svg = render_view(&plot(false, &[(0.0, 0.0); 100]), &view).unwrap();
    let elements = parsed(&svg);
    let count = |wanted| elements.iter().filter(|(name, _)| name == wanted).count();
    assert_eq!((count("circle"), count("polyline")), (100, 0));
}

#[test]
fn ticks_are_where_their_labels_say() {
    for (low, high) in [(0.0, 1.0), (-3.7, 12.1), (0.02, 0.0213), (1e9, 5e9), (-1e-9, 1e-9)] {
        let axis = Axis::around([low, high].into_iter(), false);
        assert!(axis.low <= low && high <= axis.high);
        let ticks = axis.ticks();
        assert!((3..=9).contains(&ticks.len()), "{low} {high}: {}", ticks.len());
        for tick in &ticks {
            let label: f64 = tick.label.parse().unwrap();
            assert!((label - tick.value).abs() < axis.step * 0.01, "{label} {}", tick.value);
        }
    }
    let axis = Axis::around([3e-31, 2e-5].into_iter(), true);
    let labels: Vec<String> = axis.ticks().into_iter().map(|tick| tick.label).collect();
    assert_eq!(labels.first().unwrap(), r#"10<tspan dy="-5" font-size="10">-35</tspan>"#);
    assert!(labels.len() <= 9, "{labels:?}");
}

#[test]
fn any_number_is_drawn_on_the_paper_or_refused() {
    let odd = [0.0, -0.0, 1.0, -1.0, 1e-320, 1e-300, 1e300, -1e300, 1e16, 1.0 + 1e-16, 0.1];
    for (x, y) in odd.iter().flat_map(|&x| odd.iter().map(move |&y| (x, y))) {
        for more in odd {
            for log_y in [false, true] {
                let found = render(&plot(log_y, &[(x, y), (more, more)]));
                let Ok(svg) = found else {
                    assert!(log_y && (y < 1e-300 || more < 1e-300), "{x} {y} {more}: {found:?}");
                    continue;
                };
                for (x, y) in drawn(&svg) {
                    let inside = (LEFT - 0.01..=WIDTH - RIGHT + 0.01).contains(&x)
                        && (TOP - 0.01..=TOP + PLOT_HEIGHT + 0.01).contains(&y);
                    assert!(inside, "{x} {y}");
                }
            }
        }
    }
    for wrong in [(f64::NAN, 1.0), (1.0, f64::INFINITY), (f64::NEG_INFINITY, 1.0), (1.0, f64::MAX)]
    {
        let found = render(&plot(false, &[(1.0, 1.0), wrong]));
        assert!(matches!(found, Err(PlotError::Point { index: 1, .. })), "{found:?}");
    }
    assert_eq!(render(&plot(false, &[])), Err(PlotError::Empty));
}

#[test]
fn it_has_a_legend_and_works_in_light_and_dark() {
    let mut many = plot(false, &[(0.0, 1.0), (1.0, 2.0)]);
    many.series = (0..35)
        .map(|i| Series { name: format!("curve {i}"), points: vec![(0.0, i.into())] })
        .collect();
    let svg = render(&many).unwrap();
    parsed(&svg);
    let mut strokes: Vec<String> = (0..35).map(stroke).collect();
    strokes.sort();
    strokes.dedup();
    assert_eq!(strokes.len(), 35, "all series look different");
    assert!((0..35).all(|i| svg.contains(&format!(">curve {i}</text>"))));
    assert!(svg.contains("prefers-color-scheme:dark") && !svg.contains("href"));
    assert!(
        render(&plot(false, &[(0.0, 1.0)]))
            .unwrap()
            .contains("a &lt;b&gt; &amp; &quot;c&quot; \u{FFFD}&#39;")
    );
}

#[test]
fn sizes_are_ticks_at_powers_of_two_and_marks_are_where_they_belong() {
    let at = |bytes: u64| (bytes as f64).log2();
    let plot = plot(false, &[(at(4 << 20), 30.0), (at(16 << 20), 40.0), (at(1 << 30), 50.0)]);
    let mark = |x: f64| super::super::Mark { x, label: "<knee>".into() };
    let view = View {
        x_is_log_of_bytes: true,
        y_from_zero: true,
        marks: vec![mark(at(16 << 20)), mark(at(1 << 40))],
        ..View::default()
    };
    let svg = render_view(&plot, &view).unwrap();
    for label in [">4M<", ">512M<", ">1G<", ">0<", ">&lt;knee&gt;<"] {
        assert!(svg.contains(label), "{label}: {svg}");
    }
    assert!(!svg.contains(">2G<"));
    let points = drawn(&svg);
    // Two of eight doublings.
    let share = (points[1].0 - points[0].0) / (points[2].0 - points[0].0);
    assert!((share - 0.25).abs() < 0.001);
    let elements = parsed(&svg);
    let is_mark = |attributes: &[(String, String)]| {
        attributes.iter().any(|(key, value)| key == "class" && value == "mark")
    };
    let marks: Vec<_> = elements.iter().filter(|(_, attributes)| is_mark(attributes)).collect();
    assert_eq!(marks.len(), 1, "the other one is not on the axis");
    let x = &marks[0].1.iter().find(|(key, _)| key == "x1").unwrap().1;
    assert!((x.parse::<f64>().unwrap() - points[1].0).abs() < 0.02);
    // One size only, and more than there are ticks for.
    let one = super::tests::plot(false, &[(at(4 << 20), 1.0)]);
    assert!(render_view(&one, &view).unwrap().contains(">4M<"));
    let all = super::tests::plot(false, &[(0.0, 1.0), (64.0, 2.0), (1e9, 2.0)]);
    parsed(&render_view(&all, &view).unwrap());
}

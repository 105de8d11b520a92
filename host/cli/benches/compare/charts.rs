//! The charts of the page.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::figures::{grouped, name};
use crate::peers::Side;
use crate::rounds::{Measured, OnEtcd};

const SIZE: (u32, u32) = (1_200, 400);
const FONT: &str = "sans-serif";

/// One curve, with its name.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Its name, its unit, and what it shows of a peer with so many elections.
type Panel<'a> = (&'a str, &'a str, &'a dyn Fn(&Measured, usize) -> f64);

/// The share of handovers that took so long at most.
pub fn handovers(path: &Path, measured: &OnEtcd) -> Result<()> {
    let (go, ours) = (&measured.go, &measured.ours);
    let mut panels = [
        ("quiet", curves([&go.quiet, &ours.quiet])),
        ("20 ms after joining", curves([&go.fresh, &ours.fresh])),
        ("without a rest", curves([&go.churn, &ours.churn])),
        ("in a queue", curves([&go.herd, &ours.herd])),
    ];
    let color = RGBColor(128, 128, 128);
    let floor = Curve { name: "etcd-client alone", color, points: share(&measured.floor) };
    panels[0].1.push(floor);
    let points = panels.iter().flat_map(|(_, curves)| curves).flat_map(|curve| &curve.points);
    let (least, most) = bounds(points, |point| point.0);
    let root = SVGBackend::new(path, (SIZE.0, 2 * SIZE.1)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (caption, curves)) in root.split_evenly((2, 2)).iter().zip(panels) {
        let labels = (caption, "milliseconds", "% of handovers");
        // The names of the curves are where no curve is.
        let columns = (least / 4.0..most).log_scale();
        panel(area, labels, columns, 0.0..100.0, (SeriesLabelPosition::UpperLeft, curves))?;
    }
    Ok(root.present()?)
}

/// Time and memory against the number of elections.
pub fn elections(path: &Path, measured: &OnEtcd) -> Result<()> {
    let counts = measured.go.counts();
    let points = |side, of: &dyn Fn(&Measured, usize) -> f64| {
        let peer = match side {
            Side::Go => &measured.go,
            Side::Ours => &measured.ours,
        };
        let points = counts.iter().map(|count| (*count as f64, of(peer, *count)));
        curve(side, points.filter(|(_, value)| value.is_finite()).collect())
    };
    let panels: [Panel<'_>; 3] = [
        ("won by one process", "seconds", &|peer, count| peer.won(count)),
        ("taken over after a close", "seconds", &|peer, count| peer.taken_over(count, 100)),
        ("resident memory", "MiB", &|peer, count| peer.resident(count) / 1_048_576.0),
    ];
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (caption, unit, of)) in root.split_evenly((1, 3)).iter().zip(panels) {
        let curves: Vec<_> = Side::ALL.into_iter().map(|side| points(side, of)).collect();
        let (left, right) = bounds(curves.iter().flat_map(|curve| &curve.points), |point| point.0);
        let (low, high) = bounds(curves.iter().flat_map(|curve| &curve.points), |point| point.1);
        let labels = (caption, "elections", unit);
        let (columns, rows) = ((left..right).log_scale(), (low..high).log_scale());
        panel(area, labels, columns, rows, (SeriesLabelPosition::LowerRight, curves))?;
    }
    Ok(root.present()?)
}

fn panel<X, Y>(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    (caption, x, y): (&str, &str, &str),
    columns: X,
    rows: Y,
    (names, curves): (SeriesLabelPosition, Vec<Curve>),
) -> Result<()>
where
    X: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 18))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(55)
        .build_cartesian_2d(columns, rows)?;
    let number = |value: &f64| match value {
        1.0.. => grouped(value.round() as usize),
        _ => value.to_string(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x).y_desc(y).x_labels(5).y_labels(6);
    mesh.x_label_formatter(&number).y_label_formatter(&number).draw()?;
    for Curve { name, color, points } in curves {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().position(names).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}

fn curve(side: Side, points: Vec<(f64, f64)>) -> Curve {
    let color = match side {
        Side::Go => RGBColor(217, 119, 6),
        Side::Ours => RGBColor(29, 78, 216),
    };
    Curve { name: name(side), color, points }
}

/// One for each peer, in the order of [`Side::ALL`].
fn curves(times: [&[Duration]; 2]) -> Vec<Curve> {
    Side::ALL.into_iter().zip(times).map(|(side, times)| curve(side, share(times))).collect()
}

/// How many percent were over by then, in milliseconds.
fn share(times: &[Duration]) -> Vec<(f64, f64)> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let count = times.len() as f64;
    let point = |(index, time): (usize, Duration)| {
        (time.as_secs_f64() * 1e3, (index + 1) as f64 / count * 100.0)
    };
    times.into_iter().enumerate().map(point).collect()
}

/// The least and the most, with some room.
fn bounds<'a>(
    points: impl Iterator<Item = &'a (f64, f64)> + Clone,
    of: impl Fn(&(f64, f64)) -> f64 + Copy,
) -> (f64, f64) {
    let least = points.clone().map(of).fold(f64::INFINITY, f64::min);
    let most = points.map(of).fold(0.0, f64::max);
    (least * 0.8, most * 1.25)
}

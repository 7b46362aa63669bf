//! Functions for Python to call: `cargo build --release`, then in Python `pl.program("target/release/shapes")`.

use paceline::Array;
use serde::{Deserialize, Serialize};

#[paceline::task(name = "area")]
fn area(width: f64, height: f64) -> f64 {
    width * height
}

/// A structure is a dict in Python.
#[derive(Serialize, Deserialize)]
struct Circle {
    name: String,
    radius: f64,
}

#[paceline::task(name = "grow")]
fn grow(circle: Circle, by: f64) -> Circle {
    Circle { radius: circle.radius * by, ..circle }
}

/// A numpy array is an `Array`.
#[paceline::task(name = "scale")]
fn scale(mut points: Array<f64>, factor: f64) -> Array<f64> {
    points.data_mut().iter_mut().for_each(|point| *point *= factor);
    points
}

#[paceline::task(name = "side")]
fn side(area: f64) -> Result<f64, String> {
    if area < 0.0 { Err(format!("no square has the area {area}")) } else { Ok(area.sqrt()) }
}

#[paceline::task(name = "corner")]
fn corner(points: Vec<(f64, f64)>, number: usize) -> (f64, f64) {
    points[number]
}

#[paceline::task(name = "where")]
fn whereabouts() -> (u32, u64, u32) {
    let current = paceline::current().expect("this is a task");
    (std::process::id(), current.slot.0, current.attempt)
}

fn main() -> paceline::Result<()> {
    paceline::init();
    // The program may well do something by itself.
    println!("a square of area 9 has the side {}", side(9.0).unwrap_or_default());
    Ok(())
}

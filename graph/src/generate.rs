//! Graphs made from a seed: R-MAT (skewed degrees) and planted partition (communities).
//!
//! Every edge, label and feature is a pure function of the specification and its number, so a graph of any size
//! streams, in any order, from any number of threads, and two machines make the same bytes.

use crate::random::Key;
use rudder_topology::VertexId;

/// Most vertices a generated graph may have: vertex ids are u32, and the all-ones id stays free.
pub const VERTICES_MAX: u64 = u32::MAX as u64;

/// What to generate. [`GraphGenerator::new`] checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorSpec {
    pub shape: Shape,
    pub vertices: u64,
    /// Directed edges. Self loops and repeats are not removed.
    pub edges: u64,
    pub seed: u64,
    /// Classes of the labels. A planted partition has one class a community.
    pub classes: u32,
}

/// How edges are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Recursive matrix (Chakrabarti, Zhan, Faloutsos 2004): the probabilities of three quadrants; the fourth is
    /// what is missing to 1. Graph500 uses 0.57, 0.19, 0.19. Vertex numbers are scrambled, so that a vertex's
    /// number says nothing of its degree.
    Rmat { a: f64, b: f64, c: f64 },
    /// Communities of equal size; an edge stays inside its source's with the probability `inside`, and goes
    /// anywhere else otherwise.
    PlantedPartition { communities: u32, inside: f64 },
}

/// Why a specification was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeneratorError {
    #[error("a generated graph has 1 to {VERTICES_MAX} vertices, not {0}")]
    Vertices(u64),
    #[error("probabilities lie between 0 and 1 and those of R-MAT sum to at most 1")]
    Probability,
    #[error("{communities} communities do not fit {vertices} vertices: give 1 to that many")]
    Communities { communities: u32, vertices: u64 },
    #[error("labels need at least one class")]
    Classes,
    #[error("`{text}` is not a generator: {reason}")]
    Syntax { text: String, reason: &'static str },
}

impl GeneratorSpec {
    /// Reads `rmat:vertices=1000,edges=8000,seed=1` or `planted:vertices=1000,edges=8000,communities=10,inside=0.9`
    /// (what follows `generate:`). Numbers may carry `k`, `M` or `G` (thousands, millions, thousands of millions).
    /// Left out: `seed=0`, `classes=16`, R-MAT's `a=0.57,b=0.19,c=0.19`, `communities=16`, `inside=0.9`.
    /// Unknown keys are handed back for the caller (such as `dim` and `dtype` of the features), in the order given.
    pub fn parse(text: &str) -> Result<(Self, Vec<(String, String)>), GeneratorError> {
        let refuse =
            |reason| GeneratorError::Syntax { text: text.chars().take(120).collect::<String>(), reason };
        let (kind, settings) = text.split_once(':').ok_or(refuse("it reads `rmat:...` or `planted:...`"))?;
        let mut numbers = Settings { text, values: Vec::new() };
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').ok_or(refuse("settings read `key=value`"))?;
            if numbers.values.iter().any(|(known, _)| known == key) {
                return Err(refuse("a key is given twice"));
            }
            numbers.values.push((key.to_owned(), value.to_owned()));
        }
        let vertices = numbers.count("vertices")?.ok_or(refuse("`vertices=` is missing"))?;
        let edges = numbers.count("edges")?.ok_or(refuse("`edges=` is missing"))?;
        let seed = numbers.count("seed")?.unwrap_or(0);
        let classes = numbers.count("classes")?.map(saturate);
        let (shape, classes) = match kind {
            "rmat" => {
                let a = numbers.probability("a")?.unwrap_or(0.57);
                let b = numbers.probability("b")?.unwrap_or(0.19);
                let c = numbers.probability("c")?.unwrap_or(0.19);
                (Shape::Rmat { a, b, c }, classes.unwrap_or(16))
            }
            "planted" => {
                let communities = numbers.count("communities")?.map_or(16, saturate);
                let inside = numbers.probability("inside")?.unwrap_or(0.9);
                (Shape::PlantedPartition { communities, inside }, classes.unwrap_or(communities))
            }
            _ => return Err(refuse("the known kinds are `rmat` and `planted`")),
        };
        let spec = GeneratorSpec { shape, vertices, edges, seed, classes };
        GraphGenerator::new(spec.clone())?;
        Ok((spec, numbers.values))
    }
}

struct Settings<'a> {
    text: &'a str,
    values: Vec<(String, String)>,
}

impl Settings<'_> {
    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.values.iter().position(|(known, _)| known == key)?;
        Some(self.values.remove(at).1)
    }

    fn refuse(&self, reason: &'static str) -> GeneratorError {
        GeneratorError::Syntax { text: self.text.chars().take(120).collect(), reason }
    }

    fn count(&mut self, key: &str) -> Result<Option<u64>, GeneratorError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let (digits, scale) = match value.char_indices().last() {
            Some((at, 'k')) => (&value[..at], 1_000),
            Some((at, 'M')) => (&value[..at], 1_000_000),
            Some((at, 'G')) => (&value[..at], 1_000_000_000),
            _ => (value.as_str(), 1),
        };
        let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
        number.map(Some).ok_or_else(|| self.refuse("counts are whole numbers, such as 5000, 5k or 2M"))
    }

    fn probability(&mut self, key: &str) -> Result<Option<f64>, GeneratorError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.refuse("probabilities are numbers, such as 0.57"))
    }
}

fn saturate(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A checked specification: ask it for edges, labels and features.
#[derive(Clone, Debug)]
pub struct GraphGenerator {
    spec: GeneratorSpec,
    edge_key: Key,
    label_key: Key,
    feature_key: Key,
    /// Levels of the R-MAT recursion: 2^levels is at least the number of vertices.
    levels: u32,
}

impl GraphGenerator {
    pub fn new(spec: GeneratorSpec) -> Result<Self, GeneratorError> {
        if spec.vertices == 0 || spec.vertices > VERTICES_MAX {
            return Err(GeneratorError::Vertices(spec.vertices));
        }
        if spec.classes == 0 {
            return Err(GeneratorError::Classes);
        }
        let probability = |p: f64| (0.0..=1.0).contains(&p);
        match spec.shape {
            Shape::Rmat { a, b, c } => {
                if ![a, b, c].into_iter().all(probability) || a + b + c > 1.0 + 1e-9 {
                    return Err(GeneratorError::Probability);
                }
            }
            Shape::PlantedPartition { communities, inside } => {
                if !probability(inside) {
                    return Err(GeneratorError::Probability);
                }
                if communities == 0 || u64::from(communities) > spec.vertices {
                    return Err(GeneratorError::Communities { communities, vertices: spec.vertices });
                }
            }
        }
        let root = Key::new(spec.seed);
        let levels = spec.vertices.next_power_of_two().trailing_zeros();
        Ok(GraphGenerator {
            edge_key: root.with(1),
            label_key: root.with(2),
            feature_key: root.with(3),
            levels,
            spec,
        })
    }

    #[must_use]
    pub fn spec(&self) -> &GeneratorSpec {
        &self.spec
    }

    /// All edges as (source, target), in the order of their numbers. A range of it can be had by [`Self::edge`].
    pub fn edges(&self) -> impl Iterator<Item = (VertexId, VertexId)> + '_ {
        (0..self.spec.edges).map(|number| self.edge(number))
    }

    /// Edge `number` as (source, target).
    #[must_use]
    pub fn edge(&self, number: u64) -> (VertexId, VertexId) {
        let key = self.edge_key.with(number);
        match self.spec.shape {
            Shape::Rmat { a, b, c } => self.rmat_edge(key, [a, a + b, a + b + c]),
            Shape::PlantedPartition { communities, inside } => self.planted_edge(key, communities, inside),
        }
    }

    fn rmat_edge(&self, key: Key, bounds: [f64; 3]) -> (VertexId, VertexId) {
        let mut draws = 0;
        // A draw outside the vertices is drawn again; each try hits with at least the chance of the first
        // quadrant. Where that is (nearly) nothing, the uniform draw below ends it.
        for _ in 0..64 {
            let (mut source, mut target) = (0_u64, 0_u64);
            for _ in 0..self.levels {
                let p = key.unit(draws);
                draws += 1;
                let quadrant = bounds.iter().filter(|&&bound| p >= bound).count() as u64;
                source = source << 1 | quadrant >> 1;
                target = target << 1 | quadrant & 1;
            }
            if source < self.spec.vertices && target < self.spec.vertices {
                return (self.scramble(source), self.scramble(target));
            }
        }
        let any = |counter| VertexId(key.below(counter, self.spec.vertices) as u32);
        (any(draws), any(draws + 1))
    }

    /// A permutation of the vertices: a Feistel network over the next even power of two, walked until it lands
    /// inside.
    fn scramble(&self, vertex: u64) -> VertexId {
        let half = self.levels.div_ceil(2).max(1);
        let mask = (1_u64 << half) - 1;
        let mut value = vertex;
        loop {
            let (mut left, mut right) = (value >> half, value & mask);
            for round in 0..4 {
                (left, right) = (right, left ^ (self.label_key.with(round).draw(right) & mask));
            }
            value = left << half | right;
            if value < self.spec.vertices {
                return VertexId(value as u32);
            }
        }
    }

    fn planted_edge(&self, key: Key, communities: u32, inside: f64) -> (VertexId, VertexId) {
        let vertices = self.spec.vertices;
        let source = key.below(0, vertices);
        let target = if key.unit(1) < inside {
            let (first, len) =
                community_range(community_of(source, vertices, communities), vertices, communities);
            first + key.below(2, len)
        } else {
            key.below(2, vertices)
        };
        (VertexId(source as u32), VertexId(target as u32))
    }

    /// The label of a vertex: its community, folded to the classes, or a drawn class.
    #[must_use]
    pub fn label(&self, vertex: VertexId) -> u32 {
        match self.spec.shape {
            Shape::PlantedPartition { communities, .. } => {
                community_of(u64::from(vertex.0), self.spec.vertices, communities) % self.spec.classes
            }
            Shape::Rmat { .. } => {
                self.label_key.with(u64::from(vertex.0)).below(9, u64::from(self.spec.classes)) as u32
            }
        }
    }

    /// The feature row of a vertex: noise around its label's centre, all within [-2, 2).
    pub fn feature_row(&self, vertex: VertexId, row: &mut [f32]) {
        let centre = self.feature_key.with(1).with(u64::from(self.label(vertex)));
        let noise = self.feature_key.with(2).with(u64::from(vertex.0));
        for (column, value) in row.iter_mut().enumerate() {
            let (centre, noise) = (centre.unit(column as u64), noise.unit(column as u64));
            *value = (centre + noise).mul_add(2.0, -2.0) as f32;
        }
    }
}

/// Community `c` holds the vertices `[c * V / C, (c + 1) * V / C)`.
fn community_of(vertex: u64, vertices: u64, communities: u32) -> u32 {
    let (vertex, vertices, communities) = (u128::from(vertex), u128::from(vertices), u128::from(communities));
    (((vertex + 1) * communities - 1) / vertices) as u32
}

fn community_range(community: u32, vertices: u64, communities: u32) -> (u64, u64) {
    let start = |c: u64| (u128::from(c) * u128::from(vertices) / u128::from(communities)) as u64;
    let first = start(u64::from(community));
    (first, start(u64::from(community) + 1) - first)
}

#[cfg(test)]
mod tests;

//! Graphs: kernels, and which of them come before which.

use crate::kernel::Launch;

#[derive(Clone)]
pub struct Node {
    pub handle: usize,
    pub launch: Launch,
    /// The numbers of the nodes that must be done before.
    pub before: Vec<usize>,
}

/// What is being made.
#[derive(Clone)]
pub struct Graph {
    pub device: usize,
    pub nodes: Vec<Node>,
}

/// What can be launched: the nodes as they were when it was made, or have been changed to since.
pub struct Executable {
    pub device: usize,
    pub nodes: Vec<Node>,
}

impl Executable {
    /// The launches in an order that is allowed and hurts: where two nodes do not wait for each other, the later one comes first.
    pub fn in_order(&self) -> Vec<Launch> {
        let mut order: Vec<usize> = vec![];
        let ready = |order: &[usize]| {
            let is_ready = |&i: &usize| {
                !order.contains(&i) && self.nodes[i].before.iter().all(|before| order.contains(before))
            };
            (0..self.nodes.len()).rev().find(is_ready)
        };
        while let Some(next) = ready(&order) {
            order.push(next);
        }
        order.into_iter().map(|i| self.nodes[i].launch.clone()).collect()
    }
}

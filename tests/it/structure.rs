//! What is true of the sources as a whole: who may use whom, which names stand where, which words
//! never do. Nothing here runs SCV.

mod arrows;
mod links;
mod names;
mod seed;
mod source;
mod words;

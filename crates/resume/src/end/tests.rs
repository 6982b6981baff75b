//! Two ends in virtual time, over connections that are cut at any moment.

mod cuts;
mod rules;
mod world;

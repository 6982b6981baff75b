-- Connections with other domains: the agent's part of each reservation across domains, as JSON. One
-- that has ended is removed when the agent forgets it.
CREATE TABLE domain_connections (
    id TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL
);

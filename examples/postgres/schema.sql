-- Jobs that have to be done in their order, each once.
CREATE TABLE jobs (id bigserial PRIMARY KEY, what text NOT NULL, done_in bigint);

"""Documents that leave a study: the certificate of its privacy, its entry in a public registry, the model's card."""

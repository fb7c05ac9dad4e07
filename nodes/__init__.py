"""The nodes that people see. Node ids, input names and their order are a public contract: workflows hold them."""
